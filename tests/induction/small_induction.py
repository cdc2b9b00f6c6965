"""An induction of seconds: a small text, a small network, small grammars."""

from dataclasses import replace

from small_runs import sentences

from onlstm.grammar.config import GrammarConfig
from onlstm.induction import plan as planning
from onlstm.induction.config import InductionText, Numbers, Settings
from onlstm.induction.plan import Plan, Speeds
from onlstm.text import corpus
from onlstm.train.config import GrammarTrainConfig

TEXT = InductionText(min_count=1, profile="pretokenized")


def numbers(**more) -> Numbers:
    default = Numbers()
    return replace(
        default,
        model=replace(default.model, embedding_size=12, hidden_size=12, chunk_size=4, num_layers=2),
        train=replace(default.train, bptt=20),
        grammar=GrammarConfig(nonterminals=4, preterminals=6, size=8),
        grammar_train=GrammarTrainConfig(checkpoint_minutes=0.001),
        **more,
    )


def write_text(folder, count=700):
    path = folder / "text.txt"
    path.write_text("\n".join(sentences(count)) + "\n")
    return path


def planned(run, text, *, epochs=2, **settings) -> Plan:
    """A run folder with its corpus and a plan that does not depend on speed."""
    run.mkdir()
    settings = Settings(**{"seeds": 1, "rounds": 1, "text": TEXT, "numbers": numbers()} | settings)
    data = corpus.prepare([text], run / "corpus", settings.text)
    tasks = [
        replace(task, epochs=epochs if task.kind != "teacher" else 0, seconds=1.0, threads=1)
        for task in planning.tasks(settings, 2)
    ]
    plan = Plan(
        command="test",
        sources=(str(text),),
        settings=settings,
        tokens=len(data.train),
        sentences=600,
        speeds=Speeds(tokens=1000.0, sentences=100.0),
        tasks=tuple(tasks),
    )
    plan.save(run)
    return plan
