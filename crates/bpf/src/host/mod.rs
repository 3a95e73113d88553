//! What several crates ask of a Linux host: its clock, what it knows of a TCP connection, socket
//! options (pillion's own as well), its network namespaces and containers, whose sockets are, and why
//! it refuses a program.

mod cgroup_folders;
mod cgroup_units;
pub mod clock;
mod containers;
pub mod held_file;
mod interface_request;
pub mod interruption;
mod known;
pub mod libbpf;
pub mod network_namespace;
pub mod new_file;
mod offloads;
mod owners;
pub mod packet_socket;
pub mod pattern;
pub mod pillion;
mod process_began;
pub mod replacement;
pub mod socket_option;
mod socket_owners;
mod tcp_info;
mod ticks;
mod unit;

pub use cgroup_units::cgroup_units;
pub use containers::{
    Container, ContainerChoice, ContainerLabel, ContainerLabelError, ContainerName,
    ContainerNameError, Containers, Described, RuntimeFiles,
};
pub use interface_request::interface_request;
pub use known::Known;
pub use offloads::Offload;
pub use owners::{Owners, Socket};
pub use process_began::process_began;
pub use socket_owners::{SocketOwner, socket_owners};
pub use tcp_info::TcpInfo;
pub use ticks::Ticks;
pub use unit::Unit;
