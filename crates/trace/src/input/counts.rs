use super::headers::Skip;

/// What became of a trace's packets. All but the last two exclude each other and add up to
/// `packets`, once the trace has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// In the trace, of any kind.
    pub packets: u64,
    /// TCP segments given.
    pub tcp: u64,
    /// On an interface whose link type is not read.
    pub other_link: u64,
    /// Neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// IP, with something other than TCP in it.
    pub not_tcp: u64,
    /// IP fragments with TCP in them, without its header.
    pub fragments: u64,
    /// Captured too short for the TCP header.
    pub cut: u64,
    /// With headers that contradict themselves or the packet's length.
    pub damaged: u64,
    /// Left out by the filter.
    pub filtered: u64,
    /// Of those given: captured too short for the TCP options, which are then incomplete.
    pub options_cut: u64,
    /// Of those given: the first fragment of an IP packet, whose payload goes on in others.
    pub first_fragments: u64,
}

impl Counts {
    pub(super) fn skipped(&mut self, why: Skip) {
        *match why {
            Skip::OtherLink => &mut self.other_link,
            Skip::NotIp => &mut self.not_ip,
            Skip::NotTcp => &mut self.not_tcp,
            Skip::Fragment => &mut self.fragments,
            Skip::Cut => &mut self.cut,
            Skip::Damaged => &mut self.damaged,
            Skip::Filtered => &mut self.filtered,
        } += 1;
    }
}
