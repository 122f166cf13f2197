import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "system"))  # for ports


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden renders anew instead of comparing them")
