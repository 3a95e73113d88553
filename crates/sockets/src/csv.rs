use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::Sample;

/// The heading of samples as CSV, with the units.
pub const CSV_HEADING: &str = "at_ns,local,local_port,peer,peer_port,state,recovery,\
    cwnd_packets,ssthresh_packets,in_flight_packets,unacked_packets,sacked_packets,lost_packets,\
    retrans_packets,not_sent_bytes,rtt_us,rttvar_us,min_rtt_us,rto_us,backoff,mss_bytes,\
    total_retrans,bytes_acked,bytes_sent,bytes_received,delivered_packets,\
    delivery_rate_bytes_per_s,dsacks,reorderings";

/// A sample as a line of CSV, without its end; what is not known is left empty.
#[must_use]
pub fn csv_line(sample: &Sample) -> String {
    let (local, peer) = (sample.local, sample.peer);
    let mut line = format!(
        "{},{},{},{},{},{},{}",
        sample.at_ns,
        local.ip(),
        local.port(),
        peer.ip(),
        peer.port(),
        sample.state.label(),
        sample.recovery.label(),
    );
    let wide = |number: Option<u32>| number.map(u64::from);
    let numbers = [
        wide(sample.cwnd),
        wide(sample.ssthresh),
        wide(sample.in_flight),
        wide(sample.unacked),
        wide(sample.sacked),
        wide(sample.lost),
        wide(sample.retrans),
        wide(sample.not_sent),
        wide(sample.rtt_us),
        wide(sample.rttvar_us),
        wide(sample.min_rtt_us),
        wide(sample.rto_us),
        sample.backoff.map(u64::from),
        wide(sample.mss),
        wide(sample.total_retrans),
        sample.bytes_acked,
        sample.bytes_sent,
        sample.bytes_received,
        wide(sample.delivered),
        sample.delivery_rate,
        wide(sample.dsacks),
        wide(sample.reorderings),
    ];
    for number in numbers {
        line.push(',');
        line.extend(number.map(|number| number.to_string()));
    }
    line
}

/// A file of samples: CSV, compressed by zstd where its name ends so.
#[allow(clippy::large_enum_variant)]
pub enum CsvFile {
    /// The file is written as it is.
    Plain(BufWriter<File>),
    /// The file is compressed by zstd's fastest level: samples are much alike.
    Compressed(zstd::Encoder<'static, BufWriter<File>>),
}

impl CsvFile {
    /// Makes the file, and writes its heading.
    pub fn create(path: &Path, heading: &str) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let is_compressed = path.extension().is_some_and(|extension| extension == "zst");
        let mut csv = match is_compressed {
            true => Self::Compressed(zstd::Encoder::new(file, 1)?),
            false => Self::Plain(file),
        };
        writeln!(csv.to(), "{heading}")?;
        Ok(csv)
    }

    fn to(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(file) => file,
            Self::Compressed(encoder) => encoder,
        }
    }

    /// Adds lines, which are without their ends.
    pub fn write(&mut self, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        let to = self.to();
        lines
            .into_iter()
            .try_for_each(|line| writeln!(to, "{line}"))
    }

    /// Writes what of the file is still held back, and ends it.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut file) => file.flush(),
            Self::Compressed(encoder) => encoder.finish()?.flush(),
        }
    }
}
