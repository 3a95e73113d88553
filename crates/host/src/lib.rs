//! What several crates ask of a Linux host: its clock, what it knows of a TCP connection, its network
//! namespaces, whose sockets are, and why it refuses a program.

mod cgroup_units;
pub mod clock;
pub mod libbpf;
pub mod network_namespace;
mod socket_owners;
mod tcp_info;
mod ticks;
mod unit;

pub use cgroup_units::cgroup_units;
pub use socket_owners::{SocketOwner, socket_owners};
pub use tcp_info::TcpInfo;
pub use ticks::Ticks;
pub use unit::Unit;
