//! Functions for a Linux host that several crates share: clock, TCP connections, socket options,
//! network namespaces, containers, owners of sockets, and reasons for load failures.

pub mod atomic_file;
mod cgroup_owner;
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

pub use cgroup_owner::{Unit, cgroup_units};
pub use clock::Ticks;
pub use containers::{
    Container, ContainerInfo, ContainerLabel, ContainerLabelError, ContainerName,
    ContainerNameError, ContainerSelector, Containers, RuntimeFiles,
};
pub use offloads::{Offload, interface_request};
pub use owners::{Cache, Owners, Socket, SocketOwner, process_start_time, socket_owners};
pub use tcp_info::TcpInfo;
