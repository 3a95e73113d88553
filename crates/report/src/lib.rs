//! Tables, figures and the one-file HTML page.
