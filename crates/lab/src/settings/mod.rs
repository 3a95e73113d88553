//! What can be set of experiments and of traffic: files, and what options have in common with them.

pub mod experiment;
mod host_port;
mod itt;
mod numbers;
mod rate;
pub mod traffic;

pub use host_port::parse_host_port;
pub use itt::Itt;
pub use rate::Rate;

#[cfg(test)]
mod tests;
