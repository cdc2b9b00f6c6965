// Matrices, vectors, and the file they come from.

/** A matrix as {data, shape: [rows, columns]}; a vector is a Float32Array. */
export const matrix = (rows, columns, data = new Float32Array(rows * columns)) => ({ data, shape: [rows, columns] });

/** Add matrix · x to `out` and return it. Four rows at a time: their sums do not wait for each other. */
export function addProduct({ data, shape: [rows, columns] }, x, out) {
  let row = 0;
  for (; row + 4 <= rows; row += 4) {
    const a = row * columns, b = a + columns, c = b + columns, d = c + columns;
    let sumA = 0, sumB = 0, sumC = 0, sumD = 0;
    for (let k = 0; k < columns; k++) {
      const value = x[k];
      sumA += data[a + k] * value;
      sumB += data[b + k] * value;
      sumC += data[c + k] * value;
      sumD += data[d + k] * value;
    }
    out[row] += sumA;
    out[row + 1] += sumB;
    out[row + 2] += sumC;
    out[row + 3] += sumD;
  }
  for (; row < rows; row++) out[row] += dot(rowOf({ data, shape: [rows, columns] }, row), x);
  return out;
}

export function dot(x, y) {
  let sum = 0;
  for (let k = 0; k < x.length; k++) sum += x[k] * y[k];
  return sum;
}

export const rowOf = ({ data, shape: [, columns] }, row) => data.subarray(row * columns, (row + 1) * columns);

export function largest(x) {
  let top = -Infinity;
  for (let k = 0; k < x.length; k++) if (x[k] > top) top = x[k];
  return top;
}

export function logSumExp(x) {
  const top = largest(x);
  let sum = 0;
  for (let k = 0; k < x.length; k++) sum += Math.exp(x[k] - top);
  return top + Math.log(sum);
}

/** Return a model's tensors by name; throw an Error that names the file if it is damaged, or `bytes` are too few. */
export function unpack(description, buffer, bytes, file) {
  if (bytes !== description.bytes) {
    throw new Error(`${file}: ${bytes} bytes instead of ${description.bytes}; copy it again`);
  }
  if (crc32(new Uint8Array(buffer)) !== description.crc32) throw new Error(`${file}: damaged; copy it again`);
  const tensors = {};
  for (const { name, shape, type, place } of description.tensors) {
    const size = shape.reduce((product, length) => product * length, 1);
    const data = type === "float16"
      ? fromHalf(new Uint16Array(buffer, place, size))
      : new Float32Array(buffer.slice(place, place + 4 * size));
    tensors[name] = shape.length === 2 ? matrix(shape[0], shape[1], data) : data;
  }
  return tensors;
}

/** Return numbers in half precision as Float32Array, by a table of all 65,536 of them. */
function fromHalf(halves) {
  const table = (fromHalf.table ??= Float32Array.from({ length: 65536 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  }));
  const floats = new Float32Array(halves.length);
  for (let k = 0; k < halves.length; k++) floats[k] = table[halves[k]];
  return floats;
}

function crc32(bytes) {
  const table = Uint32Array.from({ length: 256 }, (_, byte) => {
    for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
    return byte;
  });
  let crc = 0xffffffff;
  for (let k = 0; k < bytes.length; k++) crc = table[(crc ^ bytes[k]) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
