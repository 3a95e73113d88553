use std::net::SocketAddr;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::host_name::{addresses, is_name};

/// An address and a port, as in `192.0.2.1:7000` and `[2001:db8::1]:7000`, or a host's name and a
/// port: its first address then.
///
/// # Errors
/// [`BadInput`] that says what is expected, or why the name has no address.
pub fn parse_host_port(text: &str) -> Result<SocketAddr, BadInput> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let of_host = text.rsplit_once(':').filter(|(host, _)| is_name(host));
    let of_host = of_host.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = of_host.ok_or(
        "expected an address or a host's name, and a port, as in 192.0.2.1:7000, \
         [2001:db8::1]:7000 or game.example.org:7000",
    )?;
    let found = addresses(host)?;
    let address = found.first().ok_or("the name has no address")?;
    Ok(SocketAddr::new(*address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_address_or_a_name_with_a_port() {
        for (text, address) in [
            ("192.0.2.1:7000", "192.0.2.1:7000"),
            ("[2001:db8::1]:7000", "[2001:db8::1]:7000"),
        ] {
            assert_eq!(parse_host_port(text).unwrap(), address.parse().unwrap());
        }
        let found = parse_host_port("localhost:7000").unwrap();
        assert!(found.ip().is_loopback() && found.port() == 7000, "{found}");
    }

    #[test]
    fn what_is_neither_is_refused_before_anybody_is_asked() {
        for text in [
            "",
            ":7000",
            "192.0.2:7000",
            "2001:db8::1:7000",
            "game",
            "game:x",
            "a b:1",
        ] {
            let told = parse_host_port(text).unwrap_err().0;
            assert!(told.starts_with("expected an address or"), "{text}: {told}");
        }
    }
}
