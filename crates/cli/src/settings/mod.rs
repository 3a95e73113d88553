//! What can be set, each once: a field of a struct is the option of the command line, the key of
//! the file, its help, its default and its check.
//!
//! Files are TOML. Whatever is wrong in one is told at once, a line for each mistake with its
//! position and a remedy ([`BadInput`]); what a table leaves out is taken from `[defaults]`, key by
//! key.

mod arguments;
mod bad_input;
mod bundling;
pub mod document;
pub mod host_name;
pub mod numbers;
pub mod policy;
mod telling;
pub mod text;
pub mod times;

pub use arguments::arguments;
pub use bad_input::BadInput;
pub use bundling::{Bundling, idle_key, idle_option, refuse_unsafe};
pub use telling::{Endpoint, Telling};
