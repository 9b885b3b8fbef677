"""FD-KVC Lab: ``streamlit run app.py``."""

from fdkvc.ui.kit.frame import run_app

run_app()
