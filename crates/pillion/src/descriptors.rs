//! Each device that is bundled on takes file descriptors. The limit that is usual, 1024, is there
//! for programs that use select(2), which pillion does not and the command may.

use std::io;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// How many files this process may have open.
#[derive(Clone, Copy)]
pub struct Descriptors {
    /// What it was given.
    given: Option<(rlim_t, rlim_t)>,
}

impl Descriptors {
    /// As many as it may ask for, from now on.
    pub fn raise() -> Self {
        let given = getrlimit(Resource::RLIMIT_NOFILE).ok();
        if let Some((_, hard)) = given {
            // Where that is refused, the given limit does.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Self { given }
    }

    /// As many as it was given, which is for what it is about to execute.
    pub fn lower(self) -> io::Result<()> {
        let Some((soft, hard)) = self.given else {
            return Ok(());
        };
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(io::Error::from)
    }
}
