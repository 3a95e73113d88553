//! Connections, and what is known of each.

mod belonging;
mod half;
mod handshake;
mod observe;
mod probe;
mod repeats;
mod seen;
mod state;
mod table;

pub use half::{Counts, HalfConnection};
pub use handshake::{Handshake, Outcome};
pub(crate) use observe::LARGEST_FRAME;
pub(crate) use repeats::{LEAD, Repeats, doubled};
pub use seen::Side;
pub use state::{Connection, Direction, Start};
pub(crate) use table::{CACHED, Found, Table};
