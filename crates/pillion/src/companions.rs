use std::time::Duration;

use pillion_bpf::Companions;

/// A connection's companions in a few words, as in `linear-timeouts rto-min=50`.
pub fn words(companions: &Companions) -> String {
    let flag = |name: &str, on: bool| on.then(|| name.to_owned());
    let time = |name: &str, time: Option<Duration>| {
        time.map(|time| format!("{name}={}", time.as_secs_f64() * 1e3))
    };
    let words = [
        flag("linear-timeouts", companions.linear_timeouts),
        flag("nodelay", companions.nodelay),
        time("rto-min", companions.rto_min),
        time("delack-max", companions.delack_max),
        time("user-timeout", companions.user_timeout),
        companions
            .congestion
            .map(|name| format!("congestion={name}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use pillion_bpf::Companion;

    use super::*;

    #[test]
    fn what_a_connection_has_is_told_under_the_options_names() {
        let all = Companions {
            linear_timeouts: true,
            nodelay: true,
            rto_min: Some(Duration::from_micros(50_500)),
            delack_max: Some(Duration::from_millis(10)),
            user_timeout: Some(Duration::from_secs(30)),
            congestion: "reno".parse().ok(),
        };
        let told = "linear-timeouts nodelay rto-min=50.5 delack-max=10 user-timeout=30000 \
                    congestion=reno";
        assert_eq!(words(&all), told);
        let names: Vec<_> = told
            .split(' ')
            .filter_map(|word| word.split('=').next())
            .collect();
        let all: Vec<_> = Companion::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names, all);
        assert_eq!(words(&Companions::default()), "");
    }
}
