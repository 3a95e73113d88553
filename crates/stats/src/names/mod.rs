//! Names: those that anybody can give (devices, processes, containers, cgroups), told so that no terminal
//! or page takes them for orders; and those of an experiment's runs.

mod escaped;
mod steering;

pub use escaped::escaped;
pub use steering::{is_steering, without_steering};
