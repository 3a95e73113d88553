use pillion_analysis::Choice;
use pillion_settings::policy::Peer;

/// Which connections are looked at: those that fit each kind of condition given.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which connections")]
pub struct ChoiceArgs {
    /// Look at connections with an end at this address or in this network; may be repeated
    #[arg(long, value_name = "ADDRESS[/PREFIX]")]
    address: Vec<Peer>,

    /// Look at connections with an end at this port; may be repeated
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,

    /// Look at the connection with this number in --list; may be repeated
    #[arg(long, value_name = "N")]
    connection: Vec<u64>,
}

impl From<ChoiceArgs> for Choice {
    fn from(args: ChoiceArgs) -> Self {
        Self {
            addresses: args
                .address
                .into_iter()
                .flat_map(|peer| peer.nets)
                .collect(),
            ports: args.port,
            connections: args.connection,
        }
    }
}
