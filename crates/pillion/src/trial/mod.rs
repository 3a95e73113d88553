//! Does bundling help these connections? What two arms of a trial say, and what watching alone can.
//!
//! * [`Summary`]: what was observed of connections, taken together, with their ACK [`Latencies`](summary::Latencies).
//! * [`MEASURES`]: what is told of a summary; [`Estimate`], with its interval.
//! * [`Trial`]: both arms, by what is drawn at random; when to [`look`](Trial::look), and the
//!   [`Verdict`], of which it is known how often it is wrong. Its [`Record`] outlives the process,
//!   in a [`RecordFile`].
//! * [`Gathered`]: connections that were only watched; its [`Advice`] is what bundling would have
//!   brought, by process and service.

mod advice;
mod arms;
mod estimate;
mod gathered;
mod record;
mod record_file;
mod sequential_test;
mod summary;

pub use advice::{Advice, Finding, Service, Watched};
pub use arms::{ArmResults, Comparison, Results, SHARES_PPM, Trial};
pub use estimate::Estimate;
pub use gathered::Gathered;
pub use record::{Record, RecordError, Setting};
pub use record_file::RecordFile;
pub use sequential_test::{ERROR_RATE, Look, Verdict};

pub use summary::{MEASURES, Of, Summary};
