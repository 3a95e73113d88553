use std::io::{self, BufWriter, Write};

/// One message received.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// The stream's number at its sender.
    pub stream: u32,
    /// The message's number within the stream.
    pub sequence: u32,
    /// `CLOCK_MONOTONIC` in ns when the sending application handed it over.
    pub sent_ns: u64,
    /// Delivery latency in microseconds: when the read that completed it returned, minus
    /// `sent_ns`.
    pub latency_us: f64,
}

/// Writes records as CSV, the units in the header line.
pub fn write_csv(records: &[Record], to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    writeln!(to, "stream,sequence,sent_ns,latency_us")?;
    for record in records {
        let Record {
            stream,
            sequence,
            sent_ns,
            latency_us,
        } = record;
        writeln!(to, "{stream},{sequence},{sent_ns},{latency_us:.3}")?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_names_the_units_and_keeps_nanoseconds() {
        let record = Record {
            stream: 1,
            sequence: 2,
            sent_ns: 3_000_000_004,
            latency_us: 75_012.34,
        };
        let mut csv = Vec::new();
        write_csv(&[record], &mut csv).unwrap();
        assert_eq!(
            String::from_utf8(csv).unwrap(),
            "stream,sequence,sent_ns,latency_us\n1,2,3000000004,75012.340\n"
        );
    }
}
