"""The training of a language model: windows of one long text, state carried from one to the next.

Many processes (`World`) hold columns of the same batch and do the same arithmetic.
"""

import math
import random
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from onlstm.errors import UserError
from onlstm.lm.dropout import Masks
from onlstm.lm.model import LanguageModel
from onlstm.lm.reader import States, detached, window
from onlstm.lm.score import evaluate
from onlstm.train import fit
from onlstm.train.averaging import Averages, stalled, swapped
from onlstm.train.checkpoint import StateDict
from onlstm.train.config import TrainConfig
from onlstm.train.distributed import World
from onlstm.train.precision import round_products


@dataclass
class Progress(fit.Progress):
    """Where the training of a language model is. The cursor is a place in the columns."""

    length_sum: int = 0
    """Of this epoch's windows, by which its loss is weighted."""
    averaging_since: int | None = None
    """The epoch after which averaging began."""


class LanguageModelTraining(fit.Training):
    """The training of `model` on ids; its folder gets the weights that are best on the validation text."""

    model: LanguageModel
    config: TrainConfig
    progress: Progress

    def __init__(
        self,
        model: LanguageModel,
        train: np.ndarray,
        valid: np.ndarray,
        config: TrainConfig,
        folder: Path,
        *,
        seed: int = 0,
        world: World = World(),  # noqa: B008  (frozen)
        about: StateDict | None = None,
        masks: Literal["device", "cpu"] = "device",
    ) -> None:
        """Prepare the training, on the model's device.

        Args:
            masks: where dropout masks are drawn; on the CPU they are the same for every device, to compare runs.
        """
        super().__init__(model, config, folder, Progress())
        self.world, self.about = world, about or {}
        for text, ids, batch in (
            ("training", train, config.batch_size),
            ("validation", valid, config.valid_batch_size),
        ):
            if len(ids) < 2 * batch:
                raise UserError(
                    f"the {text} text has {len(ids)} tokens; {batch} columns need at least {2 * batch}: "
                    "give more text, or a smaller train.batch_size or train.valid_batch_size"
                )
        if config.precision == "bfloat16":
            round_products(model)
        self._valid, self._own = valid, world.columns(config.batch_size)
        self.length = len(train) // config.batch_size
        self._text = train[: self.length * config.batch_size].reshape(config.batch_size, self.length)[self._own]
        self.end = max(1, self.length - 2)  # the original, too, leaves a last single word out
        self.loss_limit = 4 * math.log(model.config.vocab_size) + 10
        options: Any = {"lr": config.lr, "weight_decay": config.weight_decay}
        if config.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(self.parameters, foreach=True, **options)
        else:
            betas, fused = (config.beta1, config.beta2), self.device.type in ("cpu", "cuda")
            self.optimizer = torch.optim.AdamW(self.parameters, betas=betas, fused=fused, foreach=not fused, **options)
        self._state: States | None = None
        self._lengths = random.Random(seed)
        self._seed, on_cpu = seed, masks == "cpu" or self.device.type == "mps"  # which draws no 64-bit numbers
        self._generator = torch.Generator("cpu" if on_cpu else self.device).manual_seed(seed)
        self._masks = Masks(self._generator, config.batch_size, self._own.start)

    def forward(self) -> fit.Batch:
        config, progress = self.config, self.progress
        length = self._draw_length()
        ids, words = window(self._text, progress.cursor, length, self.device)
        self.model.train()
        out = self.model.loss(ids, words, self._state, self._masks)
        self._state = detached(out.state)
        progress.cursor += len(ids)
        progress.length_sum += len(ids)
        return fit.Batch(
            objective=out.objective + config.alpha * out.activation + config.beta * out.slowness,
            figures=[self.world.mean(out.nll)],
            weight=len(ids),
            lr_scale=length / config.bptt if config.vary_bptt else 1,
            numbers={"words": progress.length_sum * config.batch_size},
        )

    @property
    def size(self) -> str:
        return f"{super().size}, train.bptt {self.config.bptt}"

    def means(self) -> dict[str, float]:
        return {"mean_loss": self.progress.loss_sum / self.progress.length_sum}

    def _draw_length(self) -> int:
        if not self.config.vary_bptt:
            return self.config.bptt
        mean = self.config.bptt if self._lengths.random() < 0.95 else self.config.bptt / 2
        return max(5, int(self._lengths.gauss(mean, 5)))

    def end_epoch(self) -> dict[str, float]:
        progress, loss = self.progress, 0.0
        if self.world.rank == 0:
            with self.averaged():
                loss = evaluate(self.model, self._valid, batch=self.config.valid_batch_size).nll
                if loss < progress.best:
                    self.model.save_weights(self.folder)
                if self.config.keep_epochs:
                    self.model.save(self.folder / "epochs" / str(progress.epoch))
        loss = self.world.from_first(loss)
        train_loss = progress.loss_sum / progress.length_sum
        progress.loss_sum, progress.length_sum, self._state = 0.0, 0, None
        self._react(loss)
        return {
            "train_loss": train_loss,
            "valid_loss": loss,
            "valid_perplexity": math.exp(min(loss, 700)),
            "averaging": progress.averaging_since is not None,
        }

    def _react(self, loss: float) -> None:
        """Note a validation loss: best so far, plateau, averaging, fine-tuning."""
        progress, config = self.progress, self.config
        if loss < progress.best:
            progress.best, progress.best_epoch = loss, progress.epoch
        elif config.schedule == "plateau":
            progress.lr_factor /= 4
        restart = progress.averaging_since is not None and progress.epoch == config.finetune_epoch
        triggered = progress.averaging_since is None and stalled(progress.history, loss, config.patience)
        if config.averaging != "none" and (restart or triggered):
            self.start_averaging()
        progress.history.append(loss)

    def averaged(self) -> AbstractContextManager[None]:
        """Give the model its averaged weights for a while, if there are any."""
        return swapped(self.parameters, self.averages.means() if self.averages else None)

    def start_averaging(self) -> None:
        """Begin to average the weights, from the next step on."""
        self.progress.averaging_since = self.progress.epoch
        self._make_averages()

    def _make_averages(self) -> Averages:
        asgd = None
        if self.config.averaging == "asgd-compat":
            options: Any = {"lr": self.config.lr, "weight_decay": self.config.weight_decay}
            self.optimizer = asgd = torch.optim.ASGD(self.parameters, t0=0, lambd=0.0, **options)
        self.averages = Averages(self.parameters, asgd)
        return self.averages

    def state(self) -> StateDict:
        return {
            "averages": self.averages and self.averages.state_dict(),
            "state": self._state and [tuple(self.world.gather(part) for part in layer) for layer in self._state],
            "lengths": self._lengths.getstate(),
            "generator": self._generator.get_state(),
            "generator_device": self._generator.device.type,
        }

    def load_state(self, content: StateDict) -> None:
        if content["averages"] is not None:
            self._make_averages().load_state_dict(content["averages"])
        state = content["state"]
        self._state = state and tuple(
            tuple(part[:, self._own].to(self.device, copy=True) for part in layer) for layer in state
        )
        version, words, gauss = content["lengths"]
        self._lengths.setstate((version, tuple(words), gauss))
        if content.get("generator_device", "cpu") == self._generator.device.type:
            self._generator.set_state(content["generator"])
        else:  # another kind of device draws other numbers in any case
            self._generator.manual_seed(self._seed + self.progress.step)
