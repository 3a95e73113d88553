use std::collections::HashMap;

use super::watch::Seen;

/// Returns whether each sent packet arrived, given all arrived packets. Packets are matched by
/// ports, identification, sequence number and length. Among equal packets, those sent first count
/// as arrived.
pub fn fates(sent: &[Seen], arrived: &[Seen]) -> Vec<bool> {
    let key = |seen: &Seen| (seen.ports, seen.id, seen.seq, seen.payload);
    let mut open: HashMap<_, u32> = HashMap::new();
    for packet in arrived {
        *open.entry(key(packet)).or_default() += 1;
    }
    let mut take = |packet: &Seen| match open.get_mut(&key(packet)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    sent.iter().map(&mut take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(id: u16, seq: u32) -> Seen {
        Seen {
            ports: [1, 2],
            id,
            seq,
            payload: 100,
        }
    }

    #[test]
    fn what_does_not_arrive_is_lost_and_copies_are_told_apart() {
        let sent = [packet(1, 0), packet(2, 100), packet(3, 0), packet(3, 0)];
        let arrived = [packet(2, 100), packet(3, 0)];
        assert_eq!(fates(&sent, &arrived), [false, true, true, false]);
    }
}
