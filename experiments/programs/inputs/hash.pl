my %sums;
open my $words, '<', 'words.txt' or die;
while (<$words>) { my @parts = split; $sums{$parts[1]} += $parts[0] }
print "$_ $sums{$_}\n" for sort keys %sums;
my $pid = open(my $child, '-|') // die;
if (!$pid) { printf "child %.3f\n", sin(1); exit 0 }
print <$child>;
close $child;
