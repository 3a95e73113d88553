use crate::settings::experiment::{Bottleneck, Discipline, Limit, Plan, Rate, Shaper};

use super::Node;
use crate::{Error, kernel_release};

/// The queue's handle, by which it is found among the counters.
pub const QUEUE: &str = "10:";

/// Puts a bottleneck's rate and queue on a device of the router's.
pub(super) fn build(
    router: &Node,
    device: &str,
    bottleneck: &Bottleneck,
    plan: &Plan,
) -> Result<(), Error> {
    let queue = queue(bottleneck, plan);
    let burst = bottleneck.burst;
    let alone = bottleneck.queue == Discipline::Cake;
    let rate = bottleneck.rate.map(Rate::bps).filter(|_| !alone);
    let parent = if rate.is_some() { "parent 1:1" } else { "root" };
    let mut lines = match (rate, bottleneck.shaper) {
        (None, _) => Vec::new(),
        (Some(rate), Shaper::Htb) => vec![
            format!("qdisc add dev {device} root handle 1: htb default 1"),
            format!(
                "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
                 burst {burst} cburst {burst} quantum 1514"
            ),
        ],
        // The limit is that of a queue which ours takes the place of.
        (Some(rate), Shaper::Tbf) => vec![format!(
            "qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {burst}"
        )],
    };
    lines.push(format!(
        "qdisc add dev {device} {parent} handle {QUEUE} {queue}"
    ));
    router.run_batch("tc", &lines).map_err(lacking)
}

/// The queue in the words of `tc`.
fn queue(bottleneck: &Bottleneck, plan: &Plan) -> String {
    let discipline = bottleneck.queue;
    let mut words = vec![discipline.to_string()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(limit) = bottleneck
        .limit
        .and_then(|limit| in_units(limit, bottleneck, plan))
    {
        match discipline {
            Discipline::Cake => add("memlimit", limit.to_string()),
            _ => add("limit", limit.to_string()),
        }
    }
    let rate = bottleneck
        .rate
        .map(Rate::bps)
        .map(|rate| format!("{rate}bit"));
    let options = || bottleneck.options.split_whitespace();
    let given = |word| options().any(|option| option == word);
    match discipline {
        Discipline::Cake => add("bandwidth", rate.unwrap_or_else(|| "unlimited".to_owned())),
        Discipline::Red => {
            if !given("avpkt") {
                add("avpkt", "1000".to_owned());
            }
            if let Some(rate) = rate.filter(|_| !given("bandwidth")) {
                add("bandwidth", rate);
            }
        }
        _ => {}
    }
    words.extend(options().map(str::to_owned));
    words.join(" ")
}

/// The queue's limit in packets or bytes, as the discipline counts.
fn in_units(limit: Limit, bottleneck: &Bottleneck, plan: &Plan) -> Option<u64> {
    const PACKET: f64 = 1500.0;
    Some(match limit {
        Limit::Packets(count) | Limit::Bytes(count) => count.into(),
        Limit::BandwidthDelayProducts(products) => {
            let bytes = products * plan.bdp_bytes(bottleneck)?;
            // Rounded up, as in the thesis, section 4.1.
            match bottleneck.queue.counts_bytes() {
                true => bytes.ceil() as u64,
                false => (bytes / PACKET).ceil() as u64,
            }
        }
    })
}

/// The error of a discipline that is not built into the kernel.
pub(super) fn lacking(error: Error) -> Error {
    match error {
        Error::Command {
            command, reason, ..
        } if reason.contains("qdisc kind is unknown") => Error::Lacks {
            what: format!("a queue discipline of `{command}`"),
            kernel: kernel_release(),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::tests::plan;

    #[test]
    fn a_limit_in_products_is_rounded_up_to_whole_packets() {
        // 5 Mbit/s and 150 ms are 93,750 B, and the papers' queue has 63 packets.
        let mut plan = plan();
        plan.bottleneck.limit = Some(Limit::BandwidthDelayProducts(1.0));
        assert_eq!(queue(&plan.bottleneck, &plan), "pfifo limit 63");
        plan.bottleneck.queue = Discipline::Bfifo;
        assert_eq!(queue(&plan.bottleneck, &plan), "bfifo limit 93750");
    }

    #[test]
    fn a_queue_gets_what_tc_insists_on_unless_the_experiment_says_it() {
        let mut plan = plan();
        plan.bottleneck.limit = Some(Limit::Bytes(90_000));
        plan.bottleneck.queue = Discipline::Red;
        assert_eq!(
            queue(&plan.bottleneck, &plan),
            "red limit 90000 avpkt 1000 bandwidth 5000000bit"
        );
        plan.bottleneck.options = "avpkt 500".to_owned();
        assert_eq!(
            queue(&plan.bottleneck, &plan),
            "red limit 90000 bandwidth 5000000bit avpkt 500"
        );
        plan.bottleneck.queue = Discipline::Cake;
        plan.bottleneck.options.clear();
        assert_eq!(
            queue(&plan.bottleneck, &plan),
            "cake memlimit 90000 bandwidth 5000000bit"
        );
    }
}
