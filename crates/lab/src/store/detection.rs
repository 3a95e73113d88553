//! What pillion found of the losses that its bundles hid, against what the traces show.

use crate::analysis::Traces;
use crate::analysis::runs::{Group, Repairs, Totals};
use pillion_trace::Period;

use super::StoredRun;
use super::streams::GroupStreams;
use crate::Error;

impl StoredRun {
    /// Adds that to each stream that was bundled, if the run has both traces.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Trace`].
    pub(super) fn add_detection(
        &self,
        files: &[GroupStreams],
        groups: &mut [Group],
    ) -> Result<(), Error> {
        let is_bundled = |group: &&mut Group| group.whole.bundled_runs > 0;
        let mut bundled: Vec<_> = files
            .iter()
            .zip(groups)
            .filter(|(_, group)| is_bundled(group))
            .collect();
        if bundled.is_empty() {
            return Ok(());
        }
        let Some(traced) = self.traced()? else {
            return Ok(());
        };
        let (sender, receiver) = (&traced.sender, Some(&*traced.receiver));
        let traces = Traces::open(sender, receiver, Vec::new(), Period::default(), true)?;
        let repairs = traces.observe(Repairs::default()).whole()?.observer;
        for (file, group) in &mut bundled {
            group.whole.traced_runs = 1;
            let numbers = file.sent.streams.iter();
            for (sent, stream) in numbers.zip(&mut group.streams) {
                let found = sent.bundling.as_ref().map_or(0, |it| it.hidden_losses);
                stream.totals += Totals::detection(found, repairs.of(file.sender(sent.stream)));
            }
        }
        Ok(())
    }
}
