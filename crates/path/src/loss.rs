//! Uniform loss from a seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;

/// Draws the fate of the frames of one direction.
pub(crate) struct Loss {
    probability: f64,
    generator: Pcg64,
}

impl Loss {
    /// The losses of the forward and of the backward direction, independent of each other, the
    /// next two from `source`. Probabilities are 0 to 1.
    pub fn pair(source: &mut Pcg64, forward: f64, backward: f64) -> [Self; 2] {
        [forward, backward].map(|probability| Self {
            probability,
            generator: Pcg64::from_rng(source),
        })
    }

    /// Whether this frame, the next of the sequence, is lost.
    pub fn takes(&mut self, frame: &[u8]) -> bool {
        applies_to(frame) && self.generator.random_bool(self.probability)
    }
}

/// Whether chance applies to a frame: whether it is an IP packet that does not serve the link
/// itself.
pub(crate) fn applies_to(frame: &[u8]) -> bool {
    let Some((header, packet)) = frame.split_at_checked(ETHERNET) else {
        return false;
    };
    header.ends_with(&IPV4) || (header.ends_with(&IPV6) && !keeps_the_link(packet))
}

/// Whether an IPv6 packet serves the link itself: to a link-local multicast group (ff02::/16), or
/// router or neighbour discovery (ICMPv6 types 133 to 137), which may be unicast as well.
fn keeps_the_link(packet: &[u8]) -> bool {
    let to_the_link = packet.get(24..26) == Some(&[0xff, 0x02]);
    let discovery = packet.get(6) == Some(&ICMPV6)
        && packet
            .get(40)
            .is_some_and(|kind| (133..=137).contains(kind));
    to_the_link || discovery
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &ethertype, packet].concat()
    }

    fn ipv6(next_header: u8, destination: [u8; 2], kind: u8) -> Vec<u8> {
        let mut packet = [0; 60];
        packet[6] = next_header;
        packet[24..26].copy_from_slice(&destination);
        packet[40] = kind;
        frame(IPV6, &packet)
    }

    fn fates(seed: u64, probability: f64) -> [Vec<bool>; 2] {
        let packet = frame(IPV4, &[0; 40]);
        let mut source = Pcg64::seed_from_u64(seed);
        Loss::pair(&mut source, probability, probability)
            .map(|mut loss| (0..20_000).map(|_| loss.takes(&packet)).collect())
    }

    #[test]
    fn the_same_seed_draws_the_same_fates() {
        assert_eq!(fates(7, 0.05), fates(7, 0.05));
        assert_ne!(fates(7, 0.05), fates(8, 0.05));
    }

    #[test]
    fn the_directions_draw_apart() {
        let [forward, backward] = fates(7, 0.05);
        assert_ne!(forward, backward);
    }

    #[test]
    fn the_share_lost_is_the_probability() {
        for direction in fates(1, 0.05) {
            let lost = direction.iter().filter(|lost| **lost).count();
            // 1000 expected, standard deviation 31.
            assert!((850..1150).contains(&lost), "{lost} of 20000");
        }
    }

    #[test]
    fn a_packet_lost_at_a_low_probability_is_lost_at_a_higher_one() {
        let ([low, _], [high, _]) = (fates(3, 0.01), fates(3, 0.05));
        assert!(low.iter().zip(&high).all(|(low, high)| !low || *high));
    }

    #[test]
    fn the_bounds_are_all_or_nothing() {
        assert!(fates(1, 0.0).concat().iter().all(|lost| !lost));
        assert!(fates(1, 1.0).concat().iter().all(|lost| *lost));
    }

    #[test]
    fn loss_applies_to_ip_but_not_to_what_keeps_the_link() {
        assert!(applies_to(&frame(IPV4, &[0; 40])));
        assert!(applies_to(&ipv6(6, [0xfd, 0], 135)), "TCP over IPv6");
        assert!(applies_to(&ipv6(ICMPV6, [0xfd, 0], 128)), "echo request");
        assert!(!applies_to(&frame([0x08, 0x06], &[0; 28])), "ARP");
        assert!(!applies_to(&ipv6(ICMPV6, [0xfd, 0], 135)), "unicast probe");
        assert!(!applies_to(&ipv6(0, [0xff, 2], 0)), "multicast report");
    }

    #[test]
    fn a_frame_cut_short_passes() {
        assert!(!applies_to(&[]));
        assert!(!applies_to(&[0; 13]));
        assert!(applies_to(&frame(IPV6, &[])));
    }
}
