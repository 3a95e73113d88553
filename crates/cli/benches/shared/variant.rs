//! What is done about losses.

/// Plain TCP, or a reaction and a limit.
#[derive(Debug, Clone)]
pub struct Variant {
    pub name: String,
    /// Options of `pillion run`; `None` for plain TCP.
    pub bundling: Option<Vec<String>>,
}

const REACTIONS: [&str; 3] = ["none", "cwr", "tfrc-sp"];

/// Plain TCP, and each reaction with each limit of previous segments in a bundle, 0 for none.
pub fn variants(limits: &[u32]) -> Vec<Variant> {
    let plain = Variant {
        name: "plain TCP".to_owned(),
        bundling: None,
    };
    let bundled = limits.iter().flat_map(|&limit| {
        let limited = match limit {
            0 => "no limit".to_owned(),
            n => format!("limit {n}"),
        };
        REACTIONS.map(|reaction| Variant {
            name: format!("{limited}, `{reaction}`"),
            bundling: Some(options(reaction, limit)),
        })
    });
    [plain].into_iter().chain(bundled).collect()
}

fn options(reaction: &str, max_packets: u32) -> Vec<String> {
    let limit = max_packets.to_string();
    let mut options = vec!["--max-packets", &limit, "--reaction", reaction];
    if reaction == "none" {
        // The paths are the bench's own: nobody else can be harmed.
        options.push("--unsafe");
    }
    options.into_iter().map(String::from).collect()
}
