use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use crate::traffic::wire::MAX_SIZE;
use crate::traffic::{Write, read_writes};

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::{parse_ms, to_ms};

/// What an application wrote, to be written again: `file:FILE`, a CSV file with the heading
/// `gap_ms,size`, or `list:GAP=SIZE,…` with the same in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writes(pub Arc<[Write]>);

impl Writes {
    /// What a file says.
    ///
    /// # Errors
    /// [`BadInput`] with the line that is wrong, or the system's reason why the file cannot be read.
    pub fn read(file: &Path) -> Result<Self, BadInput> {
        let writes = read_writes(file).map_err(|error| BadInput(error.to_string()))?;
        match writes.is_empty() {
            true => Err(BadInput(format!("{}: it has no write", file.display()))),
            false => Ok(Self(writes.into())),
        }
    }
}

impl FromStr for Writes {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        if let Some(file) = text.strip_prefix("file:") {
            return Self::read(Path::new(file));
        }
        let write = |entry: &str| {
            let (gap, size) = entry.split_once('=')?;
            let size = size.trim().parse().ok();
            Some(Write {
                gap: parse_ms(gap.trim()).ok()?,
                size: size.filter(|size| (1..=MAX_SIZE).contains(size))?,
            })
        };
        let list = text.strip_prefix("list:");
        let writes = list.and_then(|list| list.split(',').map(write).collect());
        writes.map(Self).ok_or_else(|| {
            BadInput(format!(
                "`{text}` is no list of writes; expected \"file:FILE\", or \"list:12.5=120,30=80\", \
                 the milliseconds since the write before and the bytes, 1 to {MAX_SIZE}, of each"
            ))
        })
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.0.iter();
        let each = each.map(|write| format!("{}={}", to_ms(write.gap), write.size));
        write!(f, "list:{}", each.collect::<Vec<_>>().join(","))
    }
}
