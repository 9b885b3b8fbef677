"""About: what is not shown, the method in one screen, and how to cite it."""

from fdkvc.tour import about
from fdkvc.ui.frame import page

with page(
    "about",
    "A language model remembers a dialog in a cache of limited size. FD-KVC is one way to decide "
    "what stays; this app shows every decision, and checks what its paper claims.",
):
    about.show_text()
