//! What the measuring programs of the safeguards share.

mod account;
mod how;
mod trust;
mod variant;

pub use account::{counted, redundant_share};
pub use how::{how_taken, may_measure};
pub use trust::{Lateness, conclude};
pub use variant::{Variant, variants};

/// The binary whose bundling is measured.
pub const PILLION: &str = env!("CARGO_BIN_EXE_pillion");
