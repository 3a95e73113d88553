use pillion_stats::report::number::count;
use pillion_trace::input::Counts;

/// Packets of a trace that are in no number, or not wholly, each kind in a sentence; what is no TCP is
/// nothing to tell of, unless it is all that there is.
#[must_use]
pub fn unread(counts: &Counts) -> Vec<String> {
    let all = count(counts.packets);
    let told = |number: u64, what: &str| {
        (number > 0).then(|| format!("of {all} packets, {} {what}", count(number)))
    };
    let sentences = [
        told(
            counts.cut,
            "were captured too short for the TCP header, and are in no number; capture 128 bytes of \
             each, as with `tcpdump -s 128`",
        ),
        told(
            counts.options_cut,
            "were captured too short for the TCP options, so that timestamps and SACK blocks may be \
             missing; capture 128 bytes of each, as with `tcpdump -s 128`",
        ),
        told(
            counts.damaged,
            "contradict themselves or their length, and are in no number",
        ),
        told(
            counts.fragments,
            "are fragments without the TCP header, whose payload is in no number",
        ),
    ];
    let others = (counts.tcp == 0).then(|| without_tcp(counts)).flatten();
    sentences.into_iter().flatten().chain(others).collect()
}

/// What there is in a trace without TCP.
fn without_tcp(counts: &Counts) -> Option<String> {
    let kinds = [
        (counts.not_ip, "are no IP, as in MPLS and PPPoE"),
        (counts.not_tcp, "have something else in IP, as tunnels do"),
        (counts.other_link, "are of a link layer that is not read"),
    ];
    let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
    let kinds: Vec<_> = kinds
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    let all = count(counts.packets);
    (!kinds.is_empty()).then(|| format!("of {all} packets none is TCP: {}", kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_number_is_told_by_its_reason() {
        let counts = Counts {
            packets: 12_000,
            tcp: 11_000,
            not_tcp: 500,
            cut: 490,
            fragments: 10,
            ..Counts::default()
        };
        let told = unread(&counts);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("490 were captured too short for the TCP header"),
            "{told:?}"
        );
        assert!(told[1].contains("10 are fragments"), "{told:?}");
        let whole = Counts {
            packets: 2,
            tcp: 1,
            not_ip: 1,
            ..Counts::default()
        };
        assert!(unread(&whole).is_empty());
    }

    #[test]
    fn a_trace_without_tcp_says_what_else_there_is() {
        let counts = Counts {
            packets: 3,
            not_ip: 1,
            not_tcp: 2,
            ..Counts::default()
        };
        assert_eq!(
            unread(&counts),
            [
                "of 3 packets none is TCP: 1 are no IP, as in MPLS and PPPoE, 2 have something else in \
                 IP, as tunnels do"
            ]
        );
        assert!(unread(&Counts::default()).is_empty());
    }
}
