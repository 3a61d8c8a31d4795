"""Reports of a run: one HTML file, or a live page while the run is under way.

    write(Subject(Path("run.db")), Path("report.html"))
    serve(Subject(Path("run.db")), "127.0.0.1", 8000, ready=print)

The charts are drawn on a canvas (`chart.js`). Plotly was considered: its chart for many points compiles code at run
time, which the page's security policy forbids; it cannot be navigated by keyboard; and it would add 4.8 MB to every
report.
"""

from epochzero.report.content import Subject
from epochzero.report.server import serve
from epochzero.report.writing import write

__all__ = ["Subject", "serve", "write"]
