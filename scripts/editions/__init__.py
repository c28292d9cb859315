"""The lessons for other places than JupyterLab: Colab and a workshop. All from notebooks/."""
