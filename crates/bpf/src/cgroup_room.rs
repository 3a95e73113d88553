//! Room for cgroups, of which there may be more than there is room for: some that a user may make.

/// How many of its cgroups each rule gets, by how many each names: all of them where there is room;
/// else each gets an equal share, and what one leaves of it is shared by the others.
pub(crate) fn shares(named: &[usize], most: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..named.len()).collect();
    by_size.sort_by_key(|rule| named[*rule]);
    let mut given = vec![0; named.len()];
    let (mut left, mut rules) = (most, named.len());
    for rule in by_size {
        given[rule] = named[rule].min(left / rules);
        left -= given[rule];
        rules -= 1;
    }
    given
}

#[test]
fn who_names_many_takes_nothing_from_who_names_few() {
    assert!(shares(&[], 10).is_empty());
    assert_eq!(shares(&[3, 0, 7], 10), [3, 0, 7]);
    assert_eq!(shares(&[3, 0, 8], 10), [3, 0, 7]);
    assert_eq!(shares(&[9000, 2, 9000, 9000], 10), [2, 2, 3, 3]);
}
