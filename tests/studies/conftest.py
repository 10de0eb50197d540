import pytest
from report_sample import make_sample_report

from roundwise_studies.protocol import reproduce
from roundwise_studies.report import write_html, write_markdown


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The folder of a study's outcomes."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def results(request, cache):
    """What the study of a test's module, its `STUDY`, finds."""
    return reproduce(request.module.STUDY, cache)


@pytest.fixture(scope="session")
def sample_report():
    """The report of `report_sample`, drawn once."""
    return make_sample_report()


@pytest.fixture(scope="session")
def report_folder(sample_report, tmp_path_factory):
    """The sample report as HTML and Markdown files."""
    folder = tmp_path_factory.mktemp("report")
    write_html(sample_report, folder / "report.html")
    write_markdown(sample_report, folder / "report.md")
    return folder


@pytest.fixture(scope="session")
def report_page(report_folder):
    return (report_folder / "report.html").read_text(encoding="utf-8")
