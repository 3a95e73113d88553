//! What several crates ask of a Linux host: its clock, what it knows of a TCP connection, socket
//! options (pillion's own as well), its network namespaces and containers, whose sockets are, and why
//! it refuses a program.

pub mod atomic_file;
pub mod clock;
mod containers;
pub mod interruption;
pub mod libbpf;
pub mod network_namespace;
mod offloads;
mod owners;
pub mod pattern;
pub mod pillion;
pub mod socket_option;
mod tcp_info;
mod unit;

pub use clock::Ticks;
pub use containers::{
    Container, ContainerChoice, ContainerLabel, ContainerLabelError, ContainerName,
    ContainerNameError, Containers, Described, RuntimeFiles,
};
pub use offloads::{Offload, interface_request};
pub use owners::{Known, Owners, Socket, SocketOwner, process_began, socket_owners};
pub use tcp_info::TcpInfo;
pub use unit::{Unit, cgroup_units};
