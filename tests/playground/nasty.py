"""Lines that are hard to tokenise, and markup that must stay text."""

import random

_PARTS = """
a A bn N s S t T . ' , ’ - – / \\ % $ # & * < > ( 5 0 7 : é e\u0301 \u0301 İ 戦 の カ ー 한 \u1112\u1161\u11ab धा
\u200c \u00ad <unk> n't 's u.s. mr. 1,000 1\\/2 cannot no. 😀 👩‍👩‍👧 🇩🇪 “ ” http://a.b/c?d=1&e=2 foo@bar.com שלום
مرحبا ﷺ Σ ΣΑΣ ẞ ﬁ ½ ² ٣٤ १२ \u0958 \u212b q\u0323\u0307 a\u0328\u0301 ‐ ‑ −5 +3 -3.5% -LRB- -RCB- £ ʼ ＇ I'd've
'n' o'clock '90s US$5 A$ hk$3 gonna wanna x-ray 3-year-old 10%-owned \\* \\*\\* AT&T and/or 1/2 5:30 1–2
U.S.-based e.g. i.e. Ph.D. é\u0301 \u0b92\u0bd7 ก็ \u0e33 ﾊﾟ が か\u3099 \u1100\u1161 각 Ⅷ ① 힣 \u2126 \U0001d15e ㎏
ǅ ŉ ß \u0345 ᾳ \u200d \u200f \u202e … — « » ` `` '' " ? ! ; [ ] { } | ^ ~ = @ _
"""
_SPACES = [" ", "\t", "\x1c", "\xa0", "\u3000", "\n", "\x00", "\x85", "\u2028"]


def lines(count: int) -> list[str]:
    """Quotes, apostrophes, URLs, emoji, combining marks, CJK, right-to-left: glued and spaced in all ways."""
    draw, parts = random.Random(0), _PARTS.split()
    return [
        "".join(draw.choice(_SPACES if draw.random() < gap else parts) for _ in range(draw.randint(0, 25)))
        for gap in (draw.choice([0.1, 0.45]) for _ in range(count))
    ]


HOSTILE = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=document.title='owned'>",
    "\"><svg onload=document.title='owned'>",
    "</title></textarea></style><script>document.title='owned'</script>",
    "javascript:document.title='owned'",
    "{{constructor.constructor('document.title=1')()}} ${document.title='owned'}",
    "&lt;script&gt; &#60;b&#62; %3Cscript%3E",
    "]]><!--<a href='javascript:0'>x</a>-->",
    "\u202eright\u202c \x00 \x1b[31m \ud7ff",
    "__proto__ constructor toString hasOwnProperty",
    "(S (<b> <i>) (VP </b> &amp;))",
]
