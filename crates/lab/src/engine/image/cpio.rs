//! The archive that becomes a kernel's root file system: cpio, of the kind `newc`
//! (Documentation/driver-api/early-userspace/buffer-format.rst in the kernel's source).

use std::io::{self, Write};

use super::Entry;

/// An entry's header, which stands before its name: numbers of eight hexadecimal digits.
fn header(inode: usize, mode: u32, size: usize, name: &str) -> String {
    let name_size = name.len() + 1;
    let links = 1;
    let mut header = String::from("070701");
    let (user, group, time, device, checksum) = (0, 0, 0, 0, 0);
    for number in [inode, mode as usize, user, group, links, time, size] {
        header += &format!("{number:08x}");
    }
    for number in [device, device, device, device, name_size, checksum] {
        header += &format!("{number:08x}");
    }
    header
}

/// Writes one archive of the entries, in their order. The same entries give the same bytes: no
/// times, owners or inodes of the host.
pub(super) fn write<'a>(
    out: &mut impl Write,
    entries: impl Iterator<Item = (&'a String, &'a Entry)>,
) -> io::Result<()> {
    let mut inode = 0;
    for (path, entry) in entries {
        inode += 1;
        let (mode, content) = match entry {
            Entry::Folder => (libc::S_IFDIR | 0o755, &[][..]),
            Entry::Link(target) => (libc::S_IFLNK | 0o777, target.as_bytes()),
            Entry::File(content) => (libc::S_IFREG | 0o644, &content[..]),
            Entry::Program(content) => (libc::S_IFREG | 0o755, &content[..]),
        };
        if u32::try_from(content.len()).is_err() {
            return Err(io::Error::other(format!("{path} is larger than 4 GiB")));
        }
        put(out, inode, mode, path.trim_start_matches('/'), content)?;
    }
    put(out, 0, 0, "TRAILER!!!", &[])
}

fn put(
    out: &mut impl Write,
    inode: usize,
    mode: u32,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    let header = header(inode, mode, content.len(), name);
    out.write_all(header.as_bytes())?;
    out.write_all(name.as_bytes())?;
    out.write_all(&[0])?;
    pad(out, header.len() + name.len() + 1)?;
    out.write_all(content)?;
    pad(out, content.len())
}

/// Fills up with zeros: name and content each end at a multiple of four bytes.
fn pad(out: &mut impl Write, written: usize) -> io::Result<()> {
    out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_archive_is_what_the_format_says_byte_for_byte() {
        let entries = BTreeMap::from([("/a".to_owned(), Entry::File(b"text\n".as_slice().into()))]);
        let mut archive = Vec::new();
        write(&mut archive, entries.iter()).unwrap();
        let zero = "00000000";
        let expected = [
            "070701",
            "00000001",
            "000081a4",
            zero,
            zero,
            "00000001",
            zero,
            "00000005",
            zero,
            zero,
            zero,
            zero,
            "00000002",
            zero,
            "a\0",
            "text\n\0\0\0",
            "070701",
            zero,
            zero,
            zero,
            zero,
            "00000001",
            zero,
            zero,
            zero,
            zero,
            zero,
            zero,
            "0000000b",
            zero,
            "TRAILER!!!\0\0\0\0",
        ];
        assert_eq!(String::from_utf8(archive).unwrap(), expected.concat());
    }
}
