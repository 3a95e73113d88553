use std::fs;
use std::path::Path;

/// When a process began, in ticks since boot: the field `starttime` of `stat` in its folder of /proc.
/// With its number it is the process's alone. `None` if there is none.
#[must_use]
pub fn process_began(folder: &Path) -> Option<u64> {
    const BEHIND_THE_NAME: usize = 19;
    let stat = fs::read(folder.join("stat")).ok()?;
    // The name, the second field, may hold anything.
    let name_ends = stat.iter().rposition(|&it| it == b')')?;
    let rest = str::from_utf8(&stat[name_ends + 1..]).ok()?;
    rest.split_whitespace().nth(BEHIND_THE_NAME)?.parse().ok()
}
