//! Files of records: CSV, compressed by zstd where their names end in `.zst`.
//!
//! The heading has the names of the record's fields, which are those in JSON; what is not known is
//! left empty. So that it follows from the fields, it comes with the first record: a file without
//! records is empty.

mod lines;
mod read;
mod write;

pub use read::{ReadError, read};
pub use write::Writer;

use std::path::Path;

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

#[cfg(test)]
mod tests;
