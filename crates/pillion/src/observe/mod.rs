//! `pillion advise` and `pillion trial`: what is observed of connections, and what it says.

mod advise;
mod args;
mod config;
mod session;
mod trial;
mod words;

pub use advise::Args as AdviseArgs;
pub use trial::Args as TrialArgs;
