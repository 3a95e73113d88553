use nix::errno::Errno;

/// A request that names a network device, for `ioctl(2)`, with zeroes for all that is asked of it.
///
/// # Errors
/// ENODEV for what no device can be called.
pub fn interface_request(device: &str) -> Result<libc::ifreq, Errno> {
    let is_name = device.len() < libc::IFNAMSIZ && !device.contains('\0');
    if !is_name {
        return Err(Errno::ENODEV);
    }
    // SAFETY: plain integers and a union of such, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *place = byte.cast_signed();
    }
    Ok(request)
}
