//! The kernel's connections to the host. Outside, each is an open file with a fixed number, so
//! that nothing of the host's paths shows inside.

/// A console that carries data in one direction, from inside to the host. The kernel waits for the
/// host to take what is written, and no virtual time passes meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// [`super::job::Report`]s, one a line, as JSON.
    Reports,
    /// What the program writes to its standard output.
    Output,
    /// What the program writes to its standard error.
    Errors,
}

impl Line {
    /// All lines, in the order of their devices.
    pub const ALL: [Self; 3] = [Self::Reports, Self::Output, Self::Errors];

    /// The line's device inside.
    pub const fn device(self) -> &'static str {
        match self {
            Self::Reports => "/dev/tty1",
            Self::Output => "/dev/tty2",
            Self::Errors => "/dev/tty3",
        }
    }

    /// The kernel's option that joins the line's device to the host's open file.
    pub fn option(self) -> String {
        format!("con{}=null,fd:{}", self as i32 + 1, self.descriptor())
    }

    /// The number of the host's open file for the line.
    pub const fn descriptor(self) -> i32 {
        FIRST + self as i32
    }
}

const FIRST: i32 = 100;
/// The open file that is the image, by number.
pub(super) const IMAGE: i32 = FIRST + 10;
/// The open folder that the kernel wants for its control socket, by number.
pub(super) const CONTROL: i32 = FIRST + 11;
/// The host's open folder for results, by number.
pub(super) const RESULTS: i32 = FIRST + 12;
/// The first number of open files that is beyond all of these.
pub(super) const BEYOND: i32 = FIRST + 20;

/// The host's path of an open file of the kernel's process.
pub(super) fn path(descriptor: i32) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// Word on the kernel's command line that says that results are to be brought out.
pub(super) const WANTED: &str = "pillion.results";
