//! Lists in CSV files: a heading, then an entry a line.

use std::fs;
use std::path::Path;

/// Why a list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The file cannot be.
    #[error("{file}: {error}")]
    File {
        /// The file's name.
        file: String,
        /// The system's answer.
        error: String,
    },
    /// A line is wrong.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and the remedy.
        what: String,
    },
}

/// A file, and its name for messages.
pub(crate) struct List {
    file: String,
    text: String,
}

impl List {
    pub fn read(file: &Path) -> Result<Self, ListError> {
        let name = file.display().to_string();
        match fs::read_to_string(file) {
            Ok(text) => Ok(Self { file: name, text }),
            Err(error) => Err(ListError::File {
                file: name,
                error: error.to_string(),
            }),
        }
    }

    /// The first line.
    pub fn heading(&self) -> Option<&str> {
        self.text.lines().next().map(str::trim)
    }

    /// The lines behind it that are not empty, each with its number.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.text.lines()).skip(1);
        lines.filter(|(_, line)| !line.trim().is_empty())
    }

    pub fn wrong(&self, line: usize, what: impl Into<String>) -> ListError {
        ListError::Line {
            file: self.file.clone(),
            line,
            what: what.into(),
        }
    }
}
