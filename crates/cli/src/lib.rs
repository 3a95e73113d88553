//! Parts that the command lines of `pillion` and `pillion-lab` share.
// `println!` and `eprintln!` panic if they cannot write; `print` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod command;
pub mod disposition;
pub mod exit;
pub mod help;
pub mod helper_process;
pub mod log;
pub mod output_file;
pub mod print;
pub mod settings;
pub mod stop;

/// pillion's version, and its commit.
pub const VERSION: &str = env!("PILLION_VERSION");
