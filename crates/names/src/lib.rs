//! Names that anybody can give (devices, processes, containers, cgroups), told so that no terminal or
//! page takes them for orders.

mod escaped;
mod steering;

pub use escaped::escaped;
pub use steering::{is_steering, without_steering};
