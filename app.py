"""FD-KVC Lab: ``streamlit run app.py``."""

from fdkvc.ui.frame import run_app

if __name__ == "__main__":  # a spawned process imports this file, too
    run_app()
