//! What a kernel and a loader read of an executable file.

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

/// An executable file's loader, `None` where it needs none.
pub(super) fn interpreter(file: &[u8]) -> object::Result<Option<String>> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, file)? {
        if let Some(path) = segment.interpreter(endian, file)? {
            return Ok(Some(String::from_utf8_lossy(path).into_owned()));
        }
    }
    Ok(None)
}

/// The file as far as a loader maps it: without the sections that follow, which are for
/// debuggers and often most of it. Whole where the linker's output is not all that there is.
pub(super) fn loaded(file: Vec<u8>) -> Vec<u8> {
    match loaded_size(&file) {
        Ok(Some(size)) => without_sections(file, size),
        _ => file,
    }
}

fn loaded_size(file: &[u8]) -> object::Result<Option<usize>> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let sections_end = header.e_shoff(endian)
        + u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian));
    if sections_end != file.len() as u64 {
        return Ok(None);
    }
    let ends = header.program_headers(endian, file)?.iter().map(|segment| {
        let (offset, size) = segment.file_range(endian);
        offset.saturating_add(size)
    });
    let end = ends.max().and_then(|end| usize::try_from(end).ok());
    Ok(end.filter(|end| *end <= file.len()))
}

/// The fields of a 64-bit header that say where the sections are, by their bytes: offset; number
/// and index of names.
const SECTION_FIELDS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];

fn without_sections(mut file: Vec<u8>, size: usize) -> Vec<u8> {
    file.truncate(size);
    for field in SECTION_FIELDS {
        if let Some(bytes) = file.get_mut(field) {
            bytes.fill(0);
        }
    }
    file
}
