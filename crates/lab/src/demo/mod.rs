//! Plain TCP beside pillion: two runs of one experiment, made side by side.

mod page;
mod setting;
mod side;
mod table;

use std::path::Path;

use crate::settings::experiment::Run;
use serde::Serialize;

pub use page::demo_page;
pub use setting::Setting;
pub use side::Side;
pub use table::demo_table;

use crate::{Error, kernel_release};

/// What the demo found.
#[derive(Debug, Clone, Serialize)]
pub struct Demo {
    /// The bundled run; the plain one is alike, but for the bundling.
    pub run: Run,
    /// Release of the kernel that the demo ran on.
    pub kernel: String,
    /// The run with plain TCP.
    pub plain: Side,
    /// The run with bundling.
    pub pillion: Side,
}

impl Demo {
    /// Takes what the plain and the bundled run left in their folders. Both were made on this
    /// kernel with pillion's own path.
    ///
    /// # Errors
    /// [`Error::Void`] if a byte was lost or wrong; [`Error::File`].
    pub fn read(run: &Run, plain: &Path, pillion: &Path) -> Result<Self, Error> {
        Ok(Self {
            run: run.clone(),
            kernel: kernel_release(),
            plain: Side::read("plain TCP", plain)?,
            pillion: Side::read("pillion", pillion)?,
        })
    }
}
