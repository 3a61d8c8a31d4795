"""A run of a store as one HTML file to look at, or live while the run goes on.

    write(Subject(Path("run.db")), Path("report.html"))
    serve(Subject(Path("run.db")), "127.0.0.1", 8000, ready=print)

The charts are our own, on a canvas (`chart.js`). Plotly was looked at: its chart for many points compiles code from
text while it runs, which the page's security policy forbids on purpose; it cannot be walked through by keyboard; and it
would add 4.8 MB to every report.
"""

from epochzero.report.content import Subject
from epochzero.report.server import serve
from epochzero.report.writing import write

__all__ = ["Subject", "serve", "write"]
