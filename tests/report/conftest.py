import pytest

from tests.report import made


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """All studies of two models; standard is better on all tasks."""
    return made.write_results(tmp_path_factory.mktemp("report") / "results", "standard")


@pytest.fixture(scope="session")
def gathered(results):
    from triune.report.gather import gather

    return gather([results])


@pytest.fixture(scope="session")
def page(results, gathered, tmp_path_factory):
    """The page of `results`, as a file."""
    from triune.report.page import write_report

    return write_report([results], tmp_path_factory.mktemp("page") / "report.html", found=gathered)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """Records whose names and texts try to leave their place."""
    folder = tmp_path_factory.mktemp("hostile") / "results"
    texts = {"task_title": made.HOSTILE_TASK, "train_source": made.HOSTILE_LINK}
    for seed in made.SEEDS:
        made.task_record(folder / "tasks", "own", "standard", seed, 20 + seed, **texts)
        made.task_record(
            folder / "tasks", "own", "other", seed, 80, **texts, model=made.HOSTILE_MODEL, operator="shared"
        )
    made.write_run(folder / "runs" / "standard", "standard", 1.3)
    made.write_run(folder / "runs" / made.HOSTILE_RUN, "shared", 1.6)
    return folder
