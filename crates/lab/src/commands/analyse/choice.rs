use pillion_cli::settings::BadInput;
use pillion_cli::settings::policy::{Peer, Ports};
use pillion_lab::analysis::{Choice, Chosen};

/// Which connections are looked at: those that fit each kind of condition given.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which connections")]
pub struct ChoiceArgs {
    /// Look at connections with an end at this address or in this network, as in 192.0.2.0/24, or at
    /// an address that this host's name has now; may be repeated
    #[arg(long, value_name = "PEER")]
    address: Vec<Peer>,

    /// Look at connections with an end at this port, or at one of a range, as in 8000-8100; may be
    /// repeated
    #[arg(long, value_name = "PORTS")]
    port: Vec<Ports>,

    /// Look at the connection with this number in --list; may be repeated
    #[arg(long, value_name = "N")]
    connection: Vec<u64>,
}

/// An error names a connection that was chosen by its number, and that is not there.
pub fn all_found<O>(chosen: &Chosen<O>) -> Result<(), BadInput> {
    chosen.missing().map_or(Ok(()), |number| {
        let why = "no connection has the number";
        Err(BadInput(format!(
            "--connection: {why} {number}; --list has their numbers"
        )))
    })
}

impl From<ChoiceArgs> for Choice {
    fn from(args: ChoiceArgs) -> Self {
        Self {
            addresses: args
                .address
                .into_iter()
                .flat_map(|peer| peer.nets)
                .collect(),
            ports: args.port.into_iter().map(|ports| ports.0).collect(),
            connections: args.connection,
        }
    }
}
