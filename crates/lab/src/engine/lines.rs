//! The kernel's connections to the host. Outside, each is an open file with a fixed number, so
//! that nothing of the host's paths shows inside.

/// A console that carries one way, from inside to the host. The kernel waits for the host to
/// take what is written, and no virtual time passes meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// [`super::job::Report`]s, one a line, as JSON.
    Reports,
    /// What the program writes to its standard output.
    Output,
    /// What it writes to standard error.
    Errors,
}

impl Line {
    /// All, in the order of their devices.
    pub const ALL: [Self; 3] = [Self::Reports, Self::Output, Self::Errors];

    /// The device inside.
    pub const fn device(self) -> &'static str {
        match self {
            Self::Reports => "/dev/tty1",
            Self::Output => "/dev/tty2",
            Self::Errors => "/dev/tty3",
        }
    }

    /// The kernel's option that joins both.
    pub fn option(self) -> String {
        format!("con{}=null,fd:{}", self as i32 + 1, self.descriptor())
    }

    /// The host's open file.
    pub const fn descriptor(self) -> i32 {
        FIRST + self as i32
    }
}

const FIRST: i32 = 100;
/// The image.
pub(super) const IMAGE: i32 = FIRST + 10;
/// The folder that the kernel wants for its control socket.
pub(super) const CONTROL: i32 = FIRST + 11;
/// The host's folder for results.
pub(super) const RESULTS: i32 = FIRST + 12;
/// From here on nothing of the above is in the way.
pub(super) const BEYOND: i32 = FIRST + 20;

/// The host's path of an open file of the kernel's process.
pub(super) fn path(descriptor: i32) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// On the kernel's command line: results are to be brought out.
pub(super) const WANTED: &str = "pillion.results";
