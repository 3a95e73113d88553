//! Statistics of `pillion advise` and `pillion trial`.
//!
//! * [`Summary`]: sum of the observations of several connections, with their ACK
//!   [`Latencies`](summary::Latencies).
//! * [`MEASURES`]: measures of a summary. [`Estimate`]: a value with its interval.
//! * [`Trial`]: two arms with random assignment, its [interim analyses](Trial::analyse_if_due) and
//!   its [`Verdict`] with a known error rate. Its [`TrialState`] survives restarts in a
//!   [`StateFile`].
//! * [`Holdbacks`]: the same comparison for the rules of a service, window after window.
//! * [`ConnectionGroups`]: connections that were observed without bundling. Their [`Advice`]
//!   estimates the benefit of bundling by process and service.

mod advice;
mod arms;
mod estimate;
mod groups;
mod holdback;
mod sequential_test;
mod state;
mod state_file;
mod summary;

pub use advice::{Advice, AdviceKind, ObservedConnection, Service};
pub use arms::{ArmResults, Comparison, Results, SHARE_RANGE_PPM, Trial};
pub use estimate::{Estimate, estimate_text};
pub use groups::ConnectionGroups;
pub use holdback::{ArmCounts, Holdbacks, RuleComparison};
pub use sequential_test::{ERROR_RATE, InterimAnalysis, Verdict};
pub use state::{Setting, StateError, TrialState};
pub use state_file::StateFile;

pub use summary::{Formula, LATENESS_MS, MEASURES, Summary};
