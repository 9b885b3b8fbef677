"""FD-KVC Lab: ``streamlit run app.py``."""

from fdkvc.ui.frame import run_app

run_app()
